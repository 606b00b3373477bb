"""The lookup: request -> embed -> nearest neighbour -> decision -> hit or miss."""
