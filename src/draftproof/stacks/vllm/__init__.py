"""vLLM's source, asked about an MTP head: links 3 to 5."""
