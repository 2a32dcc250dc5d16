"""What gates and host agree on: commands, control steps, events, counters, and what travels on a link."""
