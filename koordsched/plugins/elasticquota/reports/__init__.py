"""Reports on elastic quotas, for people and programs.

`report` is all trees as a value, with `loans` between siblings; `summary` a quota as upstream's plugin shows it.
`pages` serves both over HTTP; `tables` is how the command line shows reports and refusals.
"""
