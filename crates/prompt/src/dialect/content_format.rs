//! Shape of `content` that a chat template expects: one string, or a list of parts.
//!
//! Engines read this off the template's syntax tree: a template that loops over a message's content
//! gets parts, any other template gets one string. The answer decides the prompt's text, so the
//! rules are vLLM's, with their gaps: a loop hidden in a conditional expression is not found.
//!
//! Source: vLLM 0.30 to 0.32, `renderers/hf.py`; SGLang uses a subset of the same rules. Where
//! vLLM's search would not end (two variables assigned from each other), ours does.

use std::collections::BTreeSet;

use minijinja::machinery::ast::{CallArg, Expr, Stmt};
use minijinja::machinery::parse;

use crate::syntax_tree::{children, visit_expr};
use crate::template::{scope_generation_tags, syntax};

/// Form in which messages carry their content into a template.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContentFormat {
    /// One string; text parts are joined by line breaks.
    String,
    /// A list of parts, in the shape of OpenAI's API.
    Parts,
}

impl ContentFormat {
    /// Detects the format that `source` expects by SGLang's rules: parts if it mentions media, or
    /// loops over the content of a variable with a usual name.
    ///
    /// Source: SGLang 0.5.23, `parser/jinja_template_utils.py`.
    #[must_use]
    pub fn detect_as_sglang(source: &str) -> Self {
        // SGLang takes any mention, also one in a comment of the template.
        if (["image", "audio", "video", "vision"].iter()).any(|word| source.contains(word)) {
            return Self::Parts;
        }
        let is_content = |expr: &Expr<'_>| {
            (["message", "msg", "m"].iter()).any(|name| is_access(expr, name, Some("content")))
        };
        Self::of(source, |nodes| nodes.loops.iter().any(|each| is_content(each.iterated)))
    }

    /// Detects the format that `source` expects by vLLM's rules. A template that does not parse
    /// gets strings.
    #[must_use]
    pub fn detect_as_vllm(source: &str) -> Self {
        // An unusual assignment target ends the engine's search, too.
        Self::of(source, |nodes| nodes.loops_over_content() == Some(true))
    }

    fn of(source: &str, wants_parts: impl FnOnce(&TemplateNodes<'_, '_>) -> bool) -> Self {
        // The tag is unknown to minijinja, and a template that does not parse would get strings.
        let source = scope_generation_tags(source);
        let Ok(root) = parse(&source, "chat_template", syntax()) else {
            return Self::String;
        };
        let mut nodes = TemplateNodes::default();
        nodes.statement(&root, &mut Vec::new());
        if wants_parts(&nodes) { Self::Parts } else { Self::String }
    }
}

/// The nodes of a template that decide, each kind in the order of the source.
#[derive(Default)]
struct TemplateNodes<'t, 's> {
    assignments: Vec<(&'t Expr<'s>, &'t Expr<'s>)>,
    loops: Vec<Loop<'t, 's>>,
    calls: Vec<MacroCall<'t, 's>>,
    /// Names of each macro's parameters, by the macro's number.
    macros: Vec<(&'s str, Vec<&'s str>)>,
}

struct Loop<'t, 's> {
    target: &'t Expr<'s>,
    iterated: &'t Expr<'s>,
    /// Numbers of the macros around it, the innermost last.
    within: Vec<usize>,
}

struct MacroCall<'t, 's> {
    name: &'s str,
    arguments: &'t [CallArg<'s>],
}

impl<'t, 's> TemplateNodes<'t, 's> {
    /// Whether a loop runs over a message's content; `None` where the search ends early.
    fn loops_over_content(&self) -> Option<bool> {
        let messages = self.message_names()?;
        let is_content =
            |expr: &Expr<'_>| (messages.iter()).any(|name| is_access(expr, name, Some("content")));
        let parameters: Vec<BTreeSet<&str>> = (self.macros.iter())
            .map(|(name, parameters)| self.content_parameters(name, parameters, &is_content))
            .collect();
        for each in &self.loops {
            let iterated = variable(each.iterated);
            let innermost = (each.within.iter().rev()).find(|&&number| {
                // An outer macro's parameters hold unless the inner one has some.
                !parameters[number].is_empty()
            });
            let is_found = is_content(each.iterated)
                || iterated.is_some_and(|name| match innermost {
                    Some(&number) => parameters[number].contains(name),
                    None => each.within.is_empty() && name == "content",
                });
            if is_found {
                // The engine's search fails at a loop whose target is no plain name.
                return variable(each.target).map(|_| true);
            }
        }
        Some(false)
    }

    /// Names under which loops see single messages.
    fn message_names(&self) -> Option<Vec<&'s str>> {
        let lists = self.aliases_of_messages()?;
        let over_messages = (self.loops.iter())
            .filter(|each| (lists.iter()).any(|name| is_access(each.iterated, name, None)));
        over_messages.map(|each| variable(each.target)).collect()
    }

    /// `messages` and the variables that are assigned from it, directly or not.
    fn aliases_of_messages(&self) -> Option<Vec<&'s str>> {
        let mut aliases = vec!["messages"];
        let mut next = 0;
        // A work list, so that two variables assigned from each other end it.
        while let Some(&alias) = aliases.get(next) {
            next += 1;
            for (target, value) in &self.assignments {
                if is_access(value, alias, None) {
                    let name = variable(target)?;
                    if !aliases.contains(&name) {
                        aliases.push(name);
                    }
                }
            }
        }
        Some(aliases)
    }

    /// Parameters of a macro to which some call passes a message's content.
    fn content_parameters(
        &self,
        name: &str,
        parameters: &[&'s str],
        is_content: &impl Fn(&Expr<'_>) -> bool,
    ) -> BTreeSet<&'s str> {
        let mut passed = BTreeSet::new();
        for call in self.calls.iter().filter(|call| call.name == name) {
            for (position, argument) in call.arguments.iter().enumerate() {
                let parameter = match argument {
                    CallArg::Pos(value) if is_content(value) => parameters.get(position),
                    CallArg::Kwarg(key, value) if is_content(value) => {
                        parameters.iter().find(|parameter| *parameter == key)
                    }
                    _ => None,
                };
                passed.extend(parameter);
            }
        }
        passed
    }

    fn statement(&mut self, statement: &'t Stmt<'s>, within: &mut Vec<usize>) {
        match statement {
            // The loop is listed before its body: the first match in the order of the source
            // decides.
            Stmt::ForLoop(each) => self.loops.push(Loop {
                target: &each.target,
                iterated: &each.iter,
                within: within.clone(),
            }),
            Stmt::Set(set) => self.assignments.push((&set.target, &set.expr)),
            Stmt::Macro(defined) => {
                let parameters = defined.args.iter().filter_map(variable).collect();
                self.macros.push((defined.name, parameters));
                within.push(self.macros.len() - 1);
            }
            Stmt::CallBlock(block) => self.call(&block.call.expr, &block.call.args),
            Stmt::Do(run) => self.call(&run.call.expr, &run.call.args),
            _ => {}
        }
        let (exprs, bodies) = children(statement);
        for expr in exprs {
            visit_expr(expr, &mut |expr| {
                if let Expr::Call(call) = expr {
                    self.call(&call.expr, &call.args);
                }
            });
        }
        for statement in bodies.into_iter().flatten() {
            self.statement(statement, within);
        }
        if let Stmt::Macro(_) = statement {
            within.pop();
        }
    }

    fn call(&mut self, called: &'t Expr<'s>, arguments: &'t [CallArg<'s>]) {
        if let Some(name) = variable(called) {
            self.calls.push(MacroCall { name, arguments });
        }
    }
}

fn variable<'s>(expr: &Expr<'s>) -> Option<&'s str> {
    match expr {
        Expr::Var(variable) => Some(variable.id),
        _ => None,
    }
}

/// Whether `expr` reads the variable `name`, or its attribute `key`, behind any filters, tests and
/// slices.
fn is_access(expr: &Expr<'_>, name: &str, key: Option<&str>) -> bool {
    match expr {
        Expr::Filter(filter) => (filter.expr.as_ref()).is_some_and(|of| is_access(of, name, key)),
        Expr::Test(test) => is_access(&test.expr, name, key),
        Expr::Slice(slice) => is_access(&slice.expr, name, key),
        Expr::Var(variable) => key.is_none() && variable.id == name,
        Expr::GetAttr(access) => key == Some(access.name) && variable(&access.expr) == Some(name),
        Expr::GetItem(access) => {
            let is_key = matches!(
                &access.subscript_expr,
                Expr::Const(subscript) if key.is_some() && subscript.value.as_str() == key
            );
            is_key && variable(&access.expr) == Some(name)
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(source: &str, expected: ContentFormat) {
        assert_eq!(ContentFormat::detect_as_vllm(source), expected, "{source}");
    }

    #[test]
    fn a_loop_over_content_asks_for_parts() {
        let inner = "{% for p in m.content %}{{ p.text }}{% endfor %}";
        let outer = |list: &str| format!("{{% for m in {list} %}}{inner}{{% endfor %}}");
        check(&outer("messages"), ContentFormat::Parts);
        check(&outer("messages[1:]"), ContentFormat::Parts);
        check(&outer("messages | reverse"), ContentFormat::Parts);
        check(&outer("messages[0]"), ContentFormat::String);
        check(&outer("turns"), ContentFormat::String);
        let alias = format!("{{% set turns = messages[1:] %}}{}", outer("turns"));
        check(&alias, ContentFormat::Parts);
        let chosen =
            format!("{{% set turns = messages if x else messages[1:] %}}{}", outer("turns"));
        check(&chosen, ContentFormat::String);
    }

    #[test]
    fn macros_pass_content_on() {
        let body = "{% for p in c %}{{ p.text }}{% endfor %}";
        let with = |call: &str| {
            format!(
                "{{% macro show(c, d) %}}{body}{{% endmacro %}}\
                 {{% for m in messages %}}{{{{ {call} }}}}{{% endfor %}}"
            )
        };
        check(&with("show(m.content, 1)"), ContentFormat::Parts);
        check(&with("show(c=m['content'])"), ContentFormat::Parts);
        check(&with("show(1, m.content)"), ContentFormat::String);
        check(&with("show(m)"), ContentFormat::String);
    }

    /// vLLM 0.32.0 finds calls anywhere in the tree: it gives these two formats.
    #[test]
    fn calls_in_filter_blocks_count() {
        let shows = "{% macro show(c) %}{% for p in c %}{{ p.text }}{% endfor %}{% endmacro %}";
        let with = |argument: &str| {
            let block = format!("{{% filter replace('a', {argument}) %}}x{{% endfilter %}}");
            format!("{shows}{{% for message in messages %}}{block}{{% endfor %}}")
        };
        check(&with("show(message.content)"), ContentFormat::Parts);
        check(&with("message.content"), ContentFormat::String);
    }

    #[test]
    fn a_variable_called_content_counts_outside_of_macros() {
        let each = "{% for p in content %}{{ p }}{% endfor %}";
        check(each, ContentFormat::Parts);
        check(&format!("{{% macro f(content) %}}{each}{{% endmacro %}}"), ContentFormat::String);
    }

    #[test]
    fn assignments_in_a_circle_end() {
        check(
            "{% set a = messages %}{% set messages = a %}{% set a = a %}{{ a }}",
            ContentFormat::String,
        );
    }

    #[test]
    fn broken_templates_get_strings() {
        check("{% for %}", ContentFormat::String);
    }
}
