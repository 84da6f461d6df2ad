def draw_all(results, folder):
    pass
