"""Children's output: whole lines, to rotated files and to the console; nothing lost, nobody blocked.

Nothing is imported here: `status` needs the rendering alone, and quickly.
"""
