//! The expressions of a template's syntax tree.

use minijinja::machinery::ast::{CallArg, Expr, Stmt};

/// The expressions directly within `expr`, in the order of the source.
pub(crate) fn parts<'t, 's>(expr: &'t Expr<'s>) -> Vec<&'t Expr<'s>> {
    match expr {
        Expr::Var(_) | Expr::Const(_) => Vec::new(),
        Expr::Slice(slice) => {
            let bounds = [&slice.start, &slice.stop, &slice.step];
            let bounds = bounds.into_iter().flatten();
            std::iter::once(&slice.expr).chain(bounds).collect()
        }
        Expr::UnaryOp(op) => vec![&op.expr],
        Expr::BinOp(op) => vec![&op.left, &op.right],
        Expr::Compare(compare) => {
            let others = compare.ops.iter().map(|op| &op.expr);
            std::iter::once(&compare.expr).chain(others).collect()
        }
        Expr::IfExpr(choice) => {
            let branches = [Some(&choice.true_expr), choice.false_expr.as_ref()];
            let branches = branches.into_iter().flatten();
            std::iter::once(&choice.test_expr).chain(branches).collect()
        }
        Expr::Filter(filter) => {
            let filtered = filter.expr.iter();
            filtered.chain(arguments(&filter.args)).collect()
        }
        Expr::Test(test) => {
            let tested = std::iter::once(&test.expr);
            tested.chain(arguments(&test.args)).collect()
        }
        Expr::GetAttr(access) => vec![&access.expr],
        Expr::GetItem(access) => vec![&access.expr, &access.subscript_expr],
        Expr::Call(call) => {
            let called = std::iter::once(&call.expr);
            called.chain(arguments(&call.args)).collect()
        }
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

/// Shows `visit` every expression below `statement`, outer ones first.
pub(crate) fn visit<'t, 's>(statement: &'t Stmt<'s>, visit: &mut impl FnMut(&'t Expr<'s>)) {
    match statement {
        Stmt::Template(root) => visit_all(&root.children, visit),
        Stmt::EmitExpr(emit) => visit_expr(&emit.expr, visit),
        Stmt::EmitRaw(_) | Stmt::Continue(_) | Stmt::Break(_) => {}
        Stmt::ForLoop(each) => {
            visit_expr(&each.iter, visit);
            each.filter_expr.iter().for_each(|expr| visit_expr(expr, visit));
            visit_all(&each.body, visit);
            visit_all(&each.else_body, visit);
        }
        Stmt::IfCond(condition) => {
            visit_expr(&condition.expr, visit);
            visit_all(&condition.true_body, visit);
            visit_all(&condition.false_body, visit);
        }
        Stmt::WithBlock(block) => {
            let values = block.assignments.iter().map(|(_, value)| value);
            values.for_each(|value| visit_expr(value, visit));
            visit_all(&block.body, visit);
        }
        Stmt::Set(set) => {
            visit_expr(&set.target, visit);
            visit_expr(&set.expr, visit);
        }
        Stmt::SetBlock(block) => {
            block.filter.iter().for_each(|expr| visit_expr(expr, visit));
            visit_all(&block.body, visit);
        }
        Stmt::AutoEscape(block) => {
            visit_expr(&block.enabled, visit);
            visit_all(&block.body, visit);
        }
        Stmt::FilterBlock(block) => {
            visit_expr(&block.filter, visit);
            visit_all(&block.body, visit);
        }
        Stmt::Macro(defined) => {
            defined.defaults.iter().for_each(|expr| visit_expr(expr, visit));
            visit_all(&defined.body, visit);
        }
        Stmt::CallBlock(block) => {
            visit_expr(&block.call.expr, visit);
            arguments(&block.call.args).for_each(|expr| visit_expr(expr, visit));
            let defaults = block.macro_decl.defaults.iter();
            defaults.for_each(|expr| visit_expr(expr, visit));
            visit_all(&block.macro_decl.body, visit);
        }
        Stmt::Do(run) => {
            visit_expr(&run.call.expr, visit);
            arguments(&run.call.args).for_each(|expr| visit_expr(expr, visit));
        }
        // Inheritance and inclusion need other templates; a chat template has none.
        _ => {}
    }
}

fn visit_all<'t, 's>(body: &'t [Stmt<'s>], visit_one: &mut impl FnMut(&'t Expr<'s>)) {
    body.iter().for_each(|statement| visit(statement, visit_one));
}

fn visit_expr<'t, 's>(expr: &'t Expr<'s>, visit: &mut impl FnMut(&'t Expr<'s>)) {
    visit(expr);
    parts(expr).into_iter().for_each(|part| visit_expr(part, visit));
}
