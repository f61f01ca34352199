"""Measuring the engine on a GPU with weights of real shapes: no command line here, no typer, no pydantic."""
