"""What is asked of a text: its instances, labels, loss, metrics and words."""
