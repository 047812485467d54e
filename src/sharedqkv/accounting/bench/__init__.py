"""Time, memory and energy of models side by side, and how near they come to what the device allows."""
