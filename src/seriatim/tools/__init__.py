"""What can be done with a job besides running it. One verb, one file: the listing of this folder is the manual.

A tool is called by a command, by tests and by other programs alike: it takes values, gives a report, prints nothing.
"""
