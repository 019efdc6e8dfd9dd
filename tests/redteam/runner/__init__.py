"""Class B, the runner: the programs that run and judge the tests are replaced, patched or reached into."""
