"""What a command that goes on for a while needs: free ports, signals that end it, progress and reminders."""
