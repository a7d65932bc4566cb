//! The expressions of a template's syntax tree.

use minijinja::machinery::ast::{CallArg, Expr, Stmt};

/// The expressions directly within `expr`, in the order of the source.
pub(crate) fn parts<'t, 's>(expr: &'t Expr<'s>) -> Vec<&'t Expr<'s>> {
    match expr {
        Expr::Var(_) | Expr::Const(_) => Vec::new(),
        Expr::Slice(slice) => {
            let bounds = [&slice.start, &slice.stop, &slice.step].into_iter().flatten();
            std::iter::once(&slice.expr).chain(bounds).collect()
        }
        Expr::UnaryOp(op) => vec![&op.expr],
        Expr::BinOp(op) => vec![&op.left, &op.right],
        Expr::Compare(compare) => {
            let others = compare.ops.iter().map(|op| &op.expr);
            std::iter::once(&compare.expr).chain(others).collect()
        }
        Expr::IfExpr(choice) => {
            [&choice.test_expr, &choice.true_expr].into_iter().chain(&choice.false_expr).collect()
        }
        Expr::Filter(filter) => filter.expr.iter().chain(arguments(&filter.args)).collect(),
        Expr::Test(test) => std::iter::once(&test.expr).chain(arguments(&test.args)).collect(),
        Expr::GetAttr(access) => vec![&access.expr],
        Expr::GetItem(access) => vec![&access.expr, &access.subscript_expr],
        Expr::Call(call) => std::iter::once(&call.expr).chain(arguments(&call.args)).collect(),
        Expr::List(list) => list.items.iter().collect(),
        Expr::Tuple(tuple) => tuple.items.iter().collect(),
        Expr::Map(map) => map.keys.iter().chain(&map.values).collect(),
    }
}

/// The expressions of a call's arguments.
pub(crate) fn arguments<'t, 's>(args: &'t [CallArg<'s>]) -> impl Iterator<Item = &'t Expr<'s>> {
    args.iter().map(|argument| match argument {
        CallArg::Pos(value)
        | CallArg::Kwarg(_, value)
        | CallArg::PosSplat(value)
        | CallArg::KwargSplat(value) => value,
    })
}

/// The expressions and the bodies directly within `statement`.
pub(crate) fn children<'t, 's>(
    statement: &'t Stmt<'s>,
) -> (Vec<&'t Expr<'s>>, Vec<&'t [Stmt<'s>]>) {
    match statement {
        Stmt::Template(root) => (vec![], vec![&root.children]),
        Stmt::EmitExpr(emit) => (vec![&emit.expr], vec![]),
        Stmt::ForLoop(each) => {
            let exprs = std::iter::once(&each.iter).chain(&each.filter_expr);
            (exprs.collect(), vec![&each.body, &each.else_body])
        }
        Stmt::IfCond(choice) => (vec![&choice.expr], vec![&choice.true_body, &choice.false_body]),
        Stmt::WithBlock(block) => {
            (block.assignments.iter().map(|(_, value)| value).collect(), vec![&block.body])
        }
        Stmt::Set(set) => (vec![&set.target, &set.expr], vec![]),
        Stmt::SetBlock(block) => (block.filter.iter().collect(), vec![&block.body]),
        Stmt::AutoEscape(block) => (vec![&block.enabled], vec![&block.body]),
        Stmt::FilterBlock(block) => (vec![&block.filter], vec![&block.body]),
        Stmt::Macro(defined) => (defined.defaults.iter().collect(), vec![&defined.body]),
        Stmt::CallBlock(block) => {
            let exprs = std::iter::once(&block.call.expr).chain(arguments(&block.call.args));
            let body: &[Stmt<'_>] = &block.macro_decl.body;
            (exprs.chain(&block.macro_decl.defaults).collect(), vec![body])
        }
        Stmt::Do(run) => {
            let exprs = std::iter::once(&run.call.expr).chain(arguments(&run.call.args));
            (exprs.collect(), vec![])
        }
        // Raw text and loop controls hold no expression. Inheritance and inclusion need other
        // templates; a chat template has none.
        _ => (vec![], vec![]),
    }
}

/// Shows `seen` every expression below `statement`, outer ones first.
pub(crate) fn visit<'t, 's>(statement: &'t Stmt<'s>, seen: &mut impl FnMut(&'t Expr<'s>)) {
    let (exprs, bodies) = children(statement);
    exprs.into_iter().for_each(|expr| visit_expr(expr, seen));
    bodies.into_iter().flatten().for_each(|statement| visit(statement, seen));
}

/// Shows `seen` an expression and every one below it, outer ones first.
pub(crate) fn visit_expr<'t, 's>(expr: &'t Expr<'s>, seen: &mut impl FnMut(&'t Expr<'s>)) {
    seen(expr);
    parts(expr).into_iter().for_each(|part| visit_expr(part, seen));
}
