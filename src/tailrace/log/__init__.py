"""Records as bytes and as columns, and the segment files that store them."""
