"""What the names of each language say of values: methods of plain values, functions that write files, names of options."""
