"""What `meshctl mcp` offers to an assistant: questions to control, and changes in two steps."""
