"""What is learnt: the classes of nodes, or which edges there are; what a task of one's own must give."""
