"""What a device counts, by name: cycles by what they go into, and the fullest that its queues were."""

CYCLES = (
    "cycles",
    "lanes_busy",
    "vector_busy",
    "sequencer_busy",
    "starved",  # the engines have nothing to run, and nothing is ready
    "fetching",  # they have nothing to run, but the controller is about to tell them
    "updating",  # no unit may run, since parameters change
    "link_in_words",
    "link_in_back_pressured",
    "link_out_words",
    "link_out_back_pressured",
    "sending_back_pressured",  # the controller has a message to send, and the queue is full
)
"""Events that a counter counts the cycles of."""

LEVELS = ("forward_ready", "backward_ready")
"""Queues whose greatest length is kept."""

NAMES = (*CYCLES, *(f"{name}_most" for name in LEVELS))
"""Counters by number; those of paths follow."""
