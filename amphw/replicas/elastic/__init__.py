"""Members that come and go: a job whose ranks may fail, return, join and leave while the others train on."""
