"""Link 4 for SGLang: its options, its own resolution of a command, and the command to propose."""
