"""What lies on disk, and how it is read safely."""
