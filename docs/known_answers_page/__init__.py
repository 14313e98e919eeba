"""What docs/build_known_answers.py is made of."""
