"""All models of others, by name."""

from __future__ import annotations

from benchmarks.others import experts, exported, graphs, language, recurrent

CASES = language.CASES | experts.CASES | recurrent.CASES | graphs.CASES | exported.CASES
