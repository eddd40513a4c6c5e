"""Sources: foreign logs, each read by a module that says what the log can and cannot prove.

One module per format. Every module declares an `Info` (class, meaning of its time, resolution, known
delay) that is printed beside every count drawn from it, parses line by line, and never guesses: a line
that is not understood in exactly one way goes to quarantine with a reason, and is counted.
"""
