"""What tests report and how the host judges it: records, plain data across the sandbox's border, conditions.

`base` holds the records, `values` the data, `judge` the expressions that are evaluated outside, `comparing` what two runs told.
"""
