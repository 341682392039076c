"""A model as an HTTP server: OpenAI's completions and chat, text in and text out, on the engine."""
