"""What evaluations say: scores, behaviour grades, comparisons, releases and their leaderboard."""
