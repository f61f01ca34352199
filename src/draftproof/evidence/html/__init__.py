"""Reports as one HTML file for people: no script, nothing loaded from elsewhere, every text escaped."""

from draftproof.evidence.html.chain_page import to_html
from draftproof.evidence.html.comparison_page import comparison_to_html

__all__ = ["comparison_to_html", "to_html"]
