"""Records as bytes and as columns, and the segment files that hold them."""
