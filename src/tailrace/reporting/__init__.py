"""What a process reports of its work: counts that are read when somebody asks for them."""
