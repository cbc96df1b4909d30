// Writes docs/reference/typescript.md from the exported types and their comments.
//
//   node scripts/reference.mjs            writes the page
//   node scripts/reference.mjs --check    only compares; status 1 if the page differs
//
// The page shows what a user calls: classes with their public members, the options that they take, what they return, and the errors.
// Private members and constructors that users do not call are left out. Signatures are in indented blocks, because fenced ones are
// programs that the tests of the documents run.
import { readFile, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { argv, exit } from "node:process";
import { fileURLToPath, pathToFileURL } from "node:url";
import ts from "typescript";

const root = join(dirname(fileURLToPath(import.meta.url)), "..");
const PAGE = join(root, "../../docs/reference/typescript.md");
/** The modules of the package, by the name that users import. */
const MODULES = { "@cove/sdk": "src/index.ts", "@cove/sdk/tools": "src/agents/tools.ts", "@cove/sdk/anthropic": "src/agents/anthropic.ts", "@cove/sdk/openai": "src/agents/openai.ts", "@cove/sdk/ai": "src/agents/ai.ts" };
/** Classes in the order in which a reader meets them; others follow in the order of their names. */
const FIRST = ["Cove", "Session", "Command", "Files", "Ports", "SessionNetwork", "Shells", "Terminal"];
/** Classes whose constructor users call. */
const CONSTRUCTED = new Set(["Cove"]);
/** A longer signature continues in lines of whole parameters. */
const WIDTH = 116;
const HEAD = `# The TypeScript SDK

This page is made from the package \`@cove/sdk\` by \`sdk/typescript/scripts/reference.mjs\`: do not change it by hand. The
[guide](../guides/typescript.md) shows how the parts are used together.

Names that end in \`Ms\` are milliseconds. \`CallOptions\` are \`signal\`, an AbortSignal, and \`requestTimeoutMs\`.
`;

/** The text of the comment before a declaration. Read from the source: for the parser, a package name in a comment would be a tag. */
const comment = (node) =>
  ts
    .getJSDocCommentsAndTags(node)
    .filter(ts.isJSDoc)
    .map((doc) => doc.getText().slice("/**".length, -"*/".length).replace(/^\s*\*/gm, ""))
    .join(" ")
    .replace(/\s+/g, " ")
    .trim();

const oneLine = (node) => node.getText().replace(/\/\*\*[\s\S]*?\*\//g, "").replace(/\s+/g, " ").trim();
const isPrivate = (member) => (member.name !== undefined && ts.isPrivateIdentifier(member.name)) || (ts.getCombinedModifierFlags(member) & (ts.ModifierFlags.Private | ts.ModifierFlags.Protected)) !== 0;

function call(name, parameters, answer) {
  const shown = parameters.map(oneLine);
  const whole = `${name}(${shown.join(", ")})${answer}`;
  if (whole.length <= WIDTH) return `    ${whole}\n`;
  return `    ${name}(\n${shown.map((one) => `        ${one},\n`).join("")}    )${answer}\n`;
}

/** A member of a class, with what its comment says. A member without a comment keeps its signature. */
function member(node, owner) {
  const text = comment(node);
  const tail = text ? `\n${text}\n\n` : "\n";
  const isStatic = (ts.getCombinedModifierFlags(node) & ts.ModifierFlags.Static) !== 0;
  const name = `${isStatic ? `${owner}.` : ""}${node.name?.getText() ?? ""}`;
  if (ts.isConstructorDeclaration(node)) return CONSTRUCTED.has(owner) ? call(`new ${owner}`, node.parameters.slice(0, 1), "") + tail : "";
  if (ts.isMethodDeclaration(node) || ts.isMethodSignature(node)) return call(name, node.parameters, `: ${node.type?.getText() ?? "void"}`) + tail;
  if (ts.isGetAccessorDeclaration(node)) return `    ${name}: ${node.type?.getText() ?? "unknown"}\n${tail}`;
  return "";
}

/** Fields, one line each, with their comments at the end. */
function fields(members) {
  const lines = members.filter((one) => (ts.isPropertySignature(one) || ts.isPropertyDeclaration(one)) && !isPrivate(one) && one.type !== undefined).map((one) => {
    const text = comment(one);
    return `    ${one.name.getText()}${one.questionToken ? "?" : ""}: ${oneLine(one.type)}${text ? `  // ${text}` : ""}\n`;
  });
  return lines.length > 0 ? `${lines.join("")}\n` : "";
}

const heritage = (node) => (node.heritageClauses ?? []).flatMap((clause) => clause.types.map(oneLine));
const about = (text) => (text ? `${text}\n\n` : "");

function shownClass(node) {
  const name = node.name.text;
  const members = node.members.filter((one) => !isPrivate(one) && !(one.name && ts.isComputedPropertyName(one.name)));
  return `### ${name}\n\n${about(comment(node))}${fields(members)}${members.map((one) => member(one, name)).join("")}`;
}

function shownInterface(node) {
  const name = node.name.text;
  const base = heritage(node).map((one) => `\`${one}\``);
  const methods = node.members.filter(ts.isMethodSignature).map((one) => member(one, name)).join("");
  return `### ${name}\n\n${about(comment(node))}${base.length > 0 ? `Has all of ${base.join(" and ")}, and:\n\n` : ""}${fields(node.members)}${methods}`;
}

function shownAlias(node) {
  const body = ts.isTypeLiteralNode(node.type) ? fields(node.type.members) : `    type ${node.name.text} = ${oneLine(node.type)}\n\n`;
  return `### ${node.name.text}\n\n${about(comment(node))}${body}`;
}

function shownFunction(node) {
  return `### ${node.name.text}\n\n${call(node.name.text, node.parameters, `: ${node.type?.getText() ?? "void"}`)}\n${about(comment(node))}`;
}

const inOrder = (nodes) => {
  const place = ({ name }) => (FIRST.includes(name.text) ? FIRST.indexOf(name.text) : FIRST.length);
  return nodes.sort((a, b) => place(a) - place(b) || (a.name.text < b.name.text ? -1 : 1));
};
const section = (title, nodes, show) => (nodes.length > 0 ? `\n## ${title}\n\n${inOrder(nodes).map(show).join("").trimEnd()}\n` : "");

function errorTable(nodes) {
  const cell = (text) => text.replaceAll("|", "\\|");
  const advice = (node) => {
    const value = node.members.find((one) => one.name?.getText() === "advice")?.initializer;
    return value && ts.isStringLiteralLike(value) ? value.text : "";
  };
  const rows = nodes.map((node) => `| \`${node.name.text}\` | \`${heritage(node)[0] ?? "Error"}\` | ${cell(comment(node))} | ${cell(advice(node))} |\n`);
  return `\n## Errors\n\nThe classes below \`ApiError\` are the [error codes](api.md#errors) of the daemon.\n\n| error | is a | when | what to do |\n|---|---|---|---|\n${rows.join("")}`;
}

/** The sources of this package alone: types of other packages are shown by their names, and reading them would take seconds. */
function ownSources() {
  const options = { target: ts.ScriptTarget.ES2022, module: ts.ModuleKind.NodeNext, moduleResolution: ts.ModuleResolutionKind.NodeNext, noLib: true, types: [] };
  const host = ts.createCompilerHost(options);
  host.resolveModuleNameLiterals = (names, from) =>
    names.map(({ text }) => ({ resolvedModule: text.startsWith(".") ? { resolvedFileName: join(dirname(from), text.replace(/\.js$/, ".ts")), extension: ts.Extension.Ts } : undefined }));
  return ts.createProgram(Object.values(MODULES).map((file) => join(root, file)), options, host);
}

/** The page, from the sources. */
export function page() {
  const program = ownSources();
  const checker = program.getTypeChecker();
  const exported = (file) =>
    checker.getExportsOfModule(checker.getSymbolAtLocation(program.getSourceFile(join(root, file)))).flatMap((symbol) => {
      const target = symbol.flags & ts.SymbolFlags.Alias ? checker.getAliasedSymbol(symbol) : symbol;
      return (target.declarations ?? []).slice(0, 1);
    });
  const main = exported(MODULES["@cove/sdk"]);
  const isGenerated = (node) => node.getSourceFile().fileName.endsWith("generated.ts");
  const isError = (node) => ts.isClassDeclaration(node) && node.getSourceFile().fileName.endsWith("errors.ts");
  const of = (nodes, kind) => nodes.filter(kind);
  const own = main.filter((node) => !isGenerated(node) && !isError(node));
  let text = HEAD;
  text += section("Classes", of(own, ts.isClassDeclaration), shownClass);
  text += section("Options and results", of(own, (node) => ts.isInterfaceDeclaration(node)), shownInterface);
  text += section("Types", of(own, ts.isTypeAliasDeclaration), shownAlias);
  for (const [name, file] of Object.entries(MODULES).slice(1)) text += section(`Tools for models: \`${name}\``, of(exported(file), ts.isFunctionDeclaration), shownFunction);
  // The options of a command have the fields of the daemon's request.
  const generated = program.getSourceFile(join(root, "src/generated.ts")).statements.filter(ts.isInterfaceDeclaration);
  const bases = own.filter(ts.isInterfaceDeclaration).flatMap(heritage).join(" ");
  const wire = [...new Set([...main.filter(isGenerated), ...generated.filter((node) => new RegExp(`\\b${node.name.text}\\b`).test(bases))])];
  text += section("What the daemon answers and takes", wire, (node) => (ts.isInterfaceDeclaration(node) ? shownInterface(node) : shownAlias(node)));
  return text + errorTable(main.filter(isError));
}

if (import.meta.url === pathToFileURL(argv[1] ?? "").href) {
  const text = page();
  if (argv.includes("--check")) {
    if ((await readFile(PAGE, "utf8").catch(() => "")) !== text) {
      console.error("docs/reference/typescript.md is not what the sources say; run node scripts/reference.mjs");
      exit(1);
    }
  } else {
    await writeFile(PAGE, text);
  }
}
