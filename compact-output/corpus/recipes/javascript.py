"""jest, vitest, mocha, tsc, eslint, prettier, npm, pnpm, yarn, and traces of Node."""

PREFIXES = ["jest", "vitest", "mocha", "tsc", "eslint", "prettier", "npm", "pnpm", "yarn", "node"]

SHOP = '''
function total(prices, discount = 0) {
  return prices.reduce((sum, price) => sum + price, 0) - discount;
}

function parse(line) {
  const [name, price] = line.split(";");
  if (price === undefined) {
    throw new TypeError(`no price in "${line}"`);
  }
  return { name, price: Number(price) };
}

module.exports = { total, parse };
'''

GOOD = '''
const { total, parse } = require("./shop");

describe("total", () => {
  for (let n = 0; n < COUNT; n++) {
    test(`adds ${n} ones`, () => expect(total(Array(n).fill(1))).toBe(n));
  }
});
test("parses", () => expect(parse("pen;3")).toEqual({ name: "pen", price: 3 }));
'''

BAD = '''
const { total, parse } = require("./shop");

describe("checkout", () => {
  test("subtracts the discount", () => {
    console.log("discount code SPRING");
    expect(total([10, 20], 5)).toBe(30);
  });
  test("reads a whole line", () => {
    expect(parse("pen;3")).toEqual({ name: "pen", price: 4, tags: ["blue"] });
  });
  test("reads a line without a price", () => {
    parse("pencil");
  });
  test.skip("prints", () => {});
  test("adds", () => expect(total([1])).toBe(1));
});
'''

VITEST = 'import { expect, test, describe } from "vitest";\n'

TYPES = '''
interface Order { id: number; lines: string[]; }

function first(order: Order): number {
  return order.lines[0];
}

const order: Order = { id: "a", lines: [] };
undefinedCall(order.price);
export { first };
''' + "\n".join(f"export const c{n}: number = 'text {n}';" for n in range(60))

LINT = '''
var a = 1;
if (a == 2) { undefinedCall() }
const unusedThing = 3;
''' + "\n".join(f"function unused{n}(x) {{ var y{n}; return missing{n} }}" for n in range(60))

ESLINT = 'import js from "@eslint/js";\nexport default [js.configs.recommended, { rules: { "no-var": "error", eqeqeq: "warn" } }];\n'

TRACES = '''
const fs = require("fs");

class OrderError extends Error {}

function load(id) {
  try {
    return JSON.parse(fs.readFileSync(`/orders/${id}.json`, "utf8"));
  } catch (error) {
    throw new OrderError(`order ${id} cannot be loaded`, { cause: error });
  }
}

async function main() {
  console.log("loading");
  await null;
  load(4711);
}

if (process.argv[2] === "deep") { (function deep() { deep(); })(); }
if (process.argv[2] === "null") { const user = null; console.log(user.name); }
main();
'''


def make(r):
    modules = {"NODE_PATH": next((folder.rsplit("/.bin", 1)[0] for folder in r.tools if "node_modules" in folder), "")}
    link = f"ln -sfn {modules['NODE_PATH']} node_modules"
    few = r.project("jest-few", {"shop.js": SHOP, "shop.test.js": GOOD.replace("COUNT", "5"), "package.json": '{"name": "shop"}'})
    r.run(link, few)
    r.record("jest-pass", "jest", "npx jest", ["6 passed, 6 total"], few, needs=["jest"])
    many = r.project("jest-many", {"shop.js": SHOP, "package.json": '{"name": "shop"}'} | {f"shop{n}.test.js": GOOD.replace("COUNT", "120") for n in range(6)})
    r.run(link, many)
    r.record("jest-huge-verbose", "jest", "npx jest --verbose", ["726 passed, 726 total"], many, needs=["jest"])
    r.record("jest-huge", "jest", "npx jest", ["726 passed, 726 total"], many, needs=["jest"])
    bad = r.project("jest-bad", {"shop.js": SHOP, "bad.test.js": BAD, "good.test.js": GOOD.replace("COUNT", "50"), "broken.test.js": 'require("./nothing");\n', "package.json": '{"name": "shop", "scripts": {"test": "jest --verbose"}}'})
    r.run(link, bad)
    facts = ["subtracts the discount", "Expected: 30", "Received: 25", "reads a whole line", 'no price in "pencil"', "bad.test.js:7:32", "shop.js:9:11", "Cannot find module './nothing'", "3 failed, 1 skipped, 52 passed"]
    r.record("jest-fail", "jest", "npx jest", facts, bad, needs=["jest"])
    r.record("jest-fail-tty", "jest", "npx jest --colors", facts, bad, tty=True, needs=["jest"])
    r.record("jest-fail-npm", "jest", "npm test", facts, bad, needs=["jest"])
    vit = r.project("vitest", {"shop.js": SHOP.replace("module.exports =", "export"), "package.json": '{"name": "shop", "type": "module"}',
                               "good.test.js": VITEST + GOOD.replace("COUNT", "400").replace("const { total, parse } = require(\"./shop\")", 'import { total, parse } from "./shop.js"'),
                               "bad.test.js": VITEST + BAD.replace("const { total, parse } = require(\"./shop\")", 'import { total, parse } from "./shop.js"')})
    r.run(link, vit)
    facts = ["subtracts the discount", "expected 25 to be 30", "reads a whole line", 'no price in "pencil"', "bad.test.js:8:32", "shop.js:9:11", "3 failed"]
    r.record("vitest-fail", "vitest", "npx vitest run", facts, vit, needs=["vitest"])
    r.record("vitest-fail-verbose", "vitest", "npx vitest run --reporter=verbose", facts, vit, needs=["vitest"])
    r.record("vitest-fail-tty", "vitest", "npx vitest run", facts, vit, tty=True, needs=["vitest"])
    r.record("vitest-huge-verbose", "vitest", "npx vitest run --reporter=verbose good", ["401 passed"], vit, needs=["vitest"])
    r.record("mocha-fail", "mocha", "mocha m.js", ["2 passing", "1 failing", "expected 5", "m.js:5"],
             r.project("mocha", {"m.js": "describe('cart', () => {\n  it('one', () => {});\n  it('two', () => {});\n  it('counts', () => {\n    throw new Error('expected 5 pens');\n  });\n});\n"}), needs=["mocha"])

    ts = r.project("ts", {"order.ts": TYPES, "tsconfig.json": '{"compilerOptions": {"strict": true, "noEmit": true, "target": "es2022", "types": []}}'})
    facts = ["TS2322", "undefinedCall", "order.ts"]
    r.record("tsc-errors", "tsc", "tsc -p .", facts + ["order.ts(5,3)", "order.ts(9,1)", "order.ts(70,14)"], ts, needs=["tsc"])
    r.record("tsc-pretty", "tsc", "tsc -p . --pretty", facts + ["order.ts:5:3", "order.ts:9:1", "Found 64 errors"], ts, tty=True, needs=["tsc"])
    lint = r.project("lint", {"bad.js": LINT, "more.js": "var z = 1;\n", "eslint.config.mjs": ESLINT, "package.json": '{"name": "lint"}'})
    r.run(link, lint)
    r.record("eslint-errors", "eslint", "npx eslint .", ["bad.js", "'undefinedCall' is not defined", "no-undef", "'missing59' is not defined", "2:1", "more.js"], lint, needs=["eslint"])
    r.record("eslint-pass", "eslint", "npx eslint eslint.config.mjs && echo clean", ["clean"], lint, needs=["eslint"])
    r.record("prettier-check", "prettier", "npx prettier --check .", ["[warn] bad.js"], lint, needs=["prettier"])

    npm = r.project("npm", {"package.json": '{"name": "web", "version": "1.0.0", "dependencies": {"express": "4.18.2", "request": "2.88.2", "rimraf": "2.7.1"}, "scripts": {"build": "node build.js"}}',
                            "build.js": "console.log('bundling 3 files');\nconsole.error('entry ./src/index.js does not exist');\nprocess.exit(2);\n"})
    r.record("npm-install", "npm", "npm install", ["added 125 packages"], npm)
    r.record("npm-install-again", "npm", "npm install", ["up to date"], npm)
    r.record("npm-list", "npm", "npm ls --all", ["express@4.18.2", "request@2.88.2"], npm)
    r.record("npm-run-fail", "npm", "npm run build", ["entry ./src/index.js does not exist", "bundling 3 files"], npm)
    r.record("npm-missing-script", "npm", "npm run deploy", ["Missing script: \"deploy\""], npm)
    r.record("npm-not-found", "npm", "npm install no-such-package-at-all-9x", ["404", "no-such-package-at-all-9x"], npm)
    r.record("npm-conflict", "npm", "npm install react@18 react-dom@17", ["ERESOLVE", "react-dom@17"], r.project("npm-conflict", {"package.json": '{"name": "c"}'}))
    r.record("pnpm-install", "pnpm", "pnpm install --store-dir ../pnpm-store", ["express 4.18.2", "request 2.88.2"], r.project("pnpm", {"package.json": '{"name": "web", "dependencies": {"express": "4.18.2", "request": "2.88.2"}}'}), needs=["pnpm"])
    r.record("pnpm-install-tty", "pnpm", "rm -rf node_modules; pnpm install --store-dir ../pnpm-store2", ["express 4.18.2", "Done in"], r.root / "pnpm", tty=True, needs=["pnpm"])
    r.record("pnpm-not-found", "pnpm", "pnpm add --store-dir ../pnpm-store2 no-such-package-at-all-9x", ["404", "no-such-package-at-all-9x"], r.root / "pnpm", needs=["pnpm"])
    r.record("yarn-install", "yarn", "yarn install", ["Saved lockfile", "Done in"], r.project("yarn", {"package.json": '{"name": "web", "license": "MIT", "dependencies": {"express": "4.18.2", "request": "2.88.2"}}'}), needs=["yarn"])
    r.record("yarn-not-found", "yarn", "yarn add no-such-package-at-all-9x", ["no-such-package-at-all-9x", "error"], r.root / "yarn", needs=["yarn"])
    app = r.project("node", {"app.js": TRACES, "syntax.js": "function f( {\n  return 1;\n"})
    r.record("node-trace", "trace", "node app.js", ["OrderError: order 4711 cannot be loaded", "app.js:10:11", "ENOENT", "/orders/4711.json"], app)
    r.record("node-trace-deep", "trace", "node app.js deep", ["RangeError: Maximum call stack size exceeded", "app.js:20"], app)
    r.record("node-trace-null", "trace", "node app.js null", ["TypeError: Cannot read properties of null (reading 'name')", "app.js:21"], app)
    r.record("node-syntax-error", "trace", "node syntax.js", ["SyntaxError", "syntax.js:2"], app)
