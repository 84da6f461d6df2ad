"""What is learnt: the classes of nodes, or which edges there are. `Task` says what a task of your own must give."""
