"""From "the logits differ" to "which bug it is": simulation first, symptoms for the rest."""
