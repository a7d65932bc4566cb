// The `openai` package for Node against chat and responses.

import OpenAI from "openai";
import { options, require, version } from "./command_line.mjs";

const { baseUrl, model, apiKey } = options();
const client = new OpenAI({ baseURL: `${baseUrl}/v1`, apiKey, maxRetries: 0 });
const messages = [
  { role: "developer", content: "Be brief." },
  { role: "user", content: "Oslo?" },
  {
    role: "assistant",
    content: null,
    tool_calls: [
      { id: "c1", type: "function", function: { name: "weather", arguments: '{"city":"Oslo"}' } },
    ],
  },
  { role: "tool", tool_call_id: "c1", content: "rain" },
];

const whole = await client.chat.completions.create({ model, messages, max_tokens: 12, temperature: 0 });
require(whole.usage.prompt_tokens > 20, "the history is part of the prompt");
let said = "";
const stream = await client.chat.completions.create({
  model, messages, max_tokens: 12, temperature: 0, stream: true,
  stream_options: { include_usage: true },
});
let usage = null;
for await (const piece of stream) {
  said += piece.choices[0]?.delta?.content ?? "";
  usage = piece.usage ?? usage;
}
require(said === (whole.choices[0].message.content ?? ""), "a stream says the same");
require(usage.completion_tokens > 0, "usage of a stream");

const kinds = [];
let end = null;
for await (const event of client.responses.stream({ model, input: "Count", max_output_tokens: 16 })) {
  kinds.push(event.type);
  end = event;
}
require(kinds[0] === "response.created", `events: ${kinds}`);
require(["response.completed", "response.incomplete"].includes(end.type), `events: ${kinds}`);
require(end.response.usage.output_tokens > 0, "usage of a response");
console.log(`ok openai (node) ${version("openai")}: chat, chat stream, responses stream`);
