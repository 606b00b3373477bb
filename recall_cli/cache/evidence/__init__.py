"""What two texts have in common and what tells them apart, read from their words."""
