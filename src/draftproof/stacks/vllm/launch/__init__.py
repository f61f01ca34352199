"""Link 4 for vLLM: its options, its own resolution of a command, and the command to propose."""
