"""Small syntax nodes: the text of a node, calls, thunks, tuples."""

from __future__ import annotations

import libcst as cst

_EMPTY = cst.Module([])


def code_of(node: cst.CSTNode) -> str:
    """The source text of a node, without surrounding space."""
    return _EMPTY.code_for_node(node).strip()


def call(name: str, *args: cst.BaseExpression, **keywords: cst.BaseExpression) -> cst.Call:
    """`name(args, keywords)` as a node."""
    plain = [cst.Arg(a) for a in args]
    named = [cst.Arg(v, keyword=cst.Name(k), equal=cst.AssignEqual(cst.SimpleWhitespace(""), cst.SimpleWhitespace(""))) for k, v in keywords.items()]
    return cst.Call(cst.Name(name), [*plain, *named])


def thunk(value: cst.BaseExpression) -> cst.Lambda:
    """`lambda: value`."""
    return cst.Lambda(cst.Parameters(), value, colon=cst.Colon(whitespace_after=cst.SimpleWhitespace(" ")))


def bracketed(value: cst.BaseExpression) -> cst.BaseExpression:
    """A tuple without brackets gets some."""
    return value.with_changes(lpar=[cst.LeftParen()], rpar=[cst.RightParen()]) if isinstance(value, cst.Tuple) and not value.lpar else value


def one_tuple(value: cst.BaseExpression) -> cst.Tuple:
    """`(value,)`."""
    return cst.Tuple([cst.Element(bracketed(value), comma=cst.Comma())])
