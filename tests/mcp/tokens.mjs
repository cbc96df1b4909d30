// Counts the tokens of each text in a JSON list on standard input, by the tokenizer o200k_base.
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";

const require = createRequire(`${process.env.COVE_MCP_PACKAGES}/`);
const { countTokens } = require("gpt-tokenizer/encoding/o200k_base");
console.log(JSON.stringify(JSON.parse(readFileSync(0, "utf8")).map((text) => countTokens(text))));
