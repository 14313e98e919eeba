"""How much each item counts: gradients and leave-one-out."""
