"""The semantic cache: request -> embed -> nearest neighbour -> decision -> hit or miss."""
