// What the clients have in common: their options, and how they say that all was well.

import { parseArgs } from "node:util";
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import path from "node:path";

export function options() {
  const text = { type: "string" };
  const { values } = parseArgs({
    options: { "base-url": text, model: text, "api-key": { ...text, default: "none" } },
  });
  if (!values["base-url"] || !values.model) {
    console.error("usage: node FILE --base-url http://127.0.0.1:8000 --model NAME [--api-key KEY]");
    process.exit(2);
  }
  const baseUrl = values["base-url"].replace(/\/+$/, "").replace(/\/v1$/, "");
  return { baseUrl, model: values.model, apiKey: values["api-key"] };
}

export function require(condition, what) {
  if (!condition) {
    console.error(`FAILED ${what}`);
    process.exit(1);
  }
}

export function version(name) {
  const search = createRequire(import.meta.url).resolve.paths(name) ?? [];
  for (const folder of search) {
    try {
      return JSON.parse(readFileSync(path.join(folder, name, "package.json"), "utf8")).version;
    } catch {
      // Not in this folder.
    }
  }
  return "?";
}
