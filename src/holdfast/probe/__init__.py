"""Small tools that touch the world, each with one purpose; they judge nothing."""
