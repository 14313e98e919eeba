"""What a shell calls: a module for each verb, and how a command line is read."""
