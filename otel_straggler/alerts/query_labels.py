"""Which labels a PromQL expression gives, and names and labels in it that nothing publishes.

It needs the package promql-parser, which is for development: nothing at run time reads PromQL.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import promql_parser as promql

Names = Mapping[str, frozenset[str]]
_SETS: Final = frozenset({"and", "unless"})


class QueryLabels:
    """Looks at expressions.

    Attributes:
        findings: what is wrong in what it has seen, as sentences.
    """

    def __init__(self, names: Names) -> None:
        self._names = names
        self.findings: list[str] = []

    def of(self, expression: str) -> frozenset[str]:
        """Labels that its elements may have."""
        try:
            return self._of(promql.parse(expression))
        except ValueError as error:
            self.findings.append(f"{expression}: no PromQL: {error}")
            return frozenset()

    def _of(self, node: promql.Expr) -> frozenset[str]:
        if isinstance(node, promql.VectorSelector):
            return self._of_selector(node)
        if isinstance(node, promql.MatrixSelector):
            return self._of_selector(node.vector_selector)
        if isinstance(node, promql.AggregateExpr):
            return self._of_aggregate(node)
        if isinstance(node, promql.BinaryExpr):
            return self._of_pair(node)
        if isinstance(node, promql.Call):
            return self._of_call(node)
        if isinstance(node, (promql.ParenExpr, promql.SubqueryExpr, promql.UnaryExpr)):
            return self._of(node.expr)
        return frozenset()

    def _of_selector(self, node: promql.VectorSelector) -> frozenset[str]:
        name = node.name or ""
        if name not in self._names:
            self.findings.append(f"{name or node}: no metric of otel-straggler")
            return frozenset()
        known = self._names[name]
        self._expect({matcher.name for matcher in node.matchers.matchers}, known, name)
        return known

    def _of_aggregate(self, node: promql.AggregateExpr) -> frozenset[str]:
        inner = self._of(node.expr)
        if node.modifier is None:
            return inner if str(node.op) in ("topk", "bottomk") else frozenset()
        if node.modifier.type != promql.AggModifierType.By:
            self.findings.append(f"{node}: 'without' lets labels of the scrape through")
        by = frozenset(node.modifier.labels)
        self._expect(by, inner, "by")
        return inner if str(node.op) in ("topk", "bottomk") else by

    def _of_pair(self, node: promql.BinaryExpr) -> frozenset[str]:
        left, right = self._of(node.lhs), self._of(node.rhs)
        operator = str(node.op)
        if operator == "or":
            return left | right
        if not left or not right:  # a number, or the sum of everything
            return left or right
        modifier = node.modifier
        if modifier is None or modifier.matching is None:
            if operator not in _SETS and left != right:
                self.findings.append(f"{operator}: sides have different labels, and no 'on'")
            return left
        on = frozenset(modifier.matching.labels)
        self._expect(on, left, f"{operator} on, left")
        self._expect(on, right, f"{operator} on, right")
        is_right = modifier.card == promql.VectorMatchCardinality.OneToMany
        many, one = (right, left) if is_right else (left, right)
        more = frozenset(modifier.group_labels or ())
        self._expect(more, one, "group")
        return many | more

    def _of_call(self, node: promql.Call) -> frozenset[str]:
        found = [self._of(argument) for argument in node.args]
        labels = frozenset().union(*found)
        if node.func.name == "label_replace":
            return labels | {str(node.args[1]).strip('"')}
        return labels - {"le"} if node.func.name == "histogram_quantile" else labels

    def _expect(self, wanted: set[str] | frozenset[str], known: frozenset[str], where: str) -> None:
        for name in sorted(wanted - known):
            self.findings.append(f"{where}: no label {name!r} there")
