"""gcc, clang, make, cmake, ninja, javac, Maven, and traces of Java."""

PREFIXES = ["gcc", "clang", "make", "cmake", "ninja", "java", "mvn", "crash"]

BAD = '''
#include <stdio.h>
#include "shop.h"

struct order { int id; };

int total(struct order *o) {
    int unused = 3;
    char *text = 42;
    return o->price;
}

int main(void) {
    printf("%d items\\n", "three");
    undeclared(5);
    return total(0)
}
'''
WARN = "#include <stdio.h>\n" + "\n".join(f"static int f{n}(int a) {{ int unused{n}; unsigned b = {n}; return a < b; }}" for n in range(30)) + '\nint main(void) { printf("%s\\n", 3); return 0; }\n'
LINK = 'int missing_symbol(int);\nint other_missing(void);\nint main(void) { return missing_symbol(3) + other_missing(); }\n'
TEMPLATES = '''
#include <map>
#include <string>
#include <vector>
#include <algorithm>
#include <iostream>

struct Item { int id; };

int main() {
    std::map<Item, std::string> names;
    names[Item{1}] = "pen";
    std::vector<Item> list;
    std::sort(list.begin(), list.end());
    std::cout << list[0];
}
'''
CRASH = '#include <stdlib.h>\n#include <stdio.h>\nint main(void) { puts("before"); fflush(stdout); int *p = malloc(4); free(p); free(p); return 0; }\n'
ASAN = '#include <stdlib.h>\n#include <stdio.h>\nint pick(int *p, int n) { return p[n]; }\nint main(void) { int *p = malloc(12); printf("start\\n"); return pick(p, 5); }\n'
CMAKE = "cmake_minimum_required(VERSION 3.13)\nproject(shop C)\n" + "include(CheckFunctionExists)\n" + \
    "".join(f"check_function_exists({name} HAS_{name.upper()})\n" for name in ["strlcpy", "epoll_create", "getrandom", "memfd_create"]) + \
    "".join(f"add_library(part{n} part{n}.c)\n" for n in range(24)) + "add_executable(app main.c)\ntarget_link_libraries(app part1)\n"

JAVA = '''
import java.util.*;

public class Shop {
    static class OrderFailed extends RuntimeException {
        OrderFailed(String text, Throwable cause) { super(text, cause); }
    }

    static int parse(String text) {
        return Integer.parseInt(text);
    }

    static void order(List<String> lines) {
        try {
            lines.stream().map(Shop::parse).sorted().forEach(System.out::println);
        } catch (NumberFormatException e) {
            throw new OrderFailed("order 4711 cannot be read", e);
        }
    }

    static int deep(int n) { return deep(n + 1) + 1; }

    public static void main(String[] args) {
        System.out.println("reading orders");
        if (args.length > 0) deep(0);
        order(List.of("1", "two"));
    }
}
'''
JAVA_BAD = '''
public class Bad {
    int count = "three";
    void run() {
        undefined(3);
        String s = new Missing().name();
        return 1;
    }
}
'''


def make(r):
    c = r.project("c", {"bad.c": BAD, "shop.h": "int total(struct order *o);\n", "warn.c": WARN, "link.c": LINK, "t.cc": TEMPLATES, "crash.c": CRASH, "asan.c": ASAN})
    r.record("gcc-errors", "gcc", "gcc -Wall -c bad.c", ["bad.c:10:13: error", "has no member named", "bad.c:16:20: error", "bad.c:8:9: warning: unused variable"], c)
    r.record("gcc-errors-tty", "gcc", "gcc -Wall -fdiagnostics-color=always -c bad.c", ["has no member named", "bad.c:10:13", "bad.c:16:20"], c, tty=True)
    r.record("gcc-warnings", "gcc", "gcc -Wall -Wextra warn.c -o warn", ["unused variable 'unused29'".replace("'", "‘", 1).replace("'", "’", 1), "warn.c:32:", "warn.c:2:"], c)
    r.record("gcc-link-error", "gcc", "gcc link.c -o link", ["undefined reference to `missing_symbol'", "undefined reference to `other_missing'", "ld returned 1 exit status"], c)
    r.record("gcc-templates", "gcc", "g++ -c t.cc", ["t.cc:15:15: error: no match for", "no match for"], c)
    r.record("clang-errors", "clang", "clang-14 -Wall -c bad.c", ["bad.c:10:15: error: no member named 'price'", "bad.c:16:20: error: expected ';'", "errors generated"], c, needs=["clang-14"])
    r.record("clang-warnings", "clang", "clang-14 -Wall -Wextra -c warn.c", ["unused variable 'unused29'", "warn.c:32:", "warnings generated"], c, needs=["clang-14"])
    r.record("crash-double-free", "trace", "gcc -w crash.c -o crash && ./crash", ["before", "double free detected"], c)
    r.record("crash-address-sanitizer", "trace", "gcc -g -fsanitize=address asan.c -o asan && ./asan",
             ["heap-buffer-overflow", "asan.c:3", "asan.c:4", "READ of size 4"], c)

    parts = {f"part{n}.c": f"int part{n}(void) {{ return {n}; }}\n" for n in range(60)}
    rules = "CFLAGS = -O1 -Wall -Wextra -std=c11 -DNDEBUG -DVERSION=\\\"1.2.3\\\" -Iinclude -Ivendor/include\nOBJECTS = " + " ".join(f"part{n}.o" for n in range(60)) + "\n\napp: main.o $(OBJECTS)\n\t$(CC) $(CFLAGS) -o $@ $^\n"
    good = r.project("make-good", parts | {"main.c": "int main(void) { return 0; }\n", "Makefile": rules})
    r.record("make-pass", "make", "make", ["-o app"], good)
    r.record("make-nothing", "make", "make", ["is up to date"], good)
    bad = r.project("make-bad", parts | {"part7.c": "int part7(void) { return missing; }\n", "main.c": "int main(void) { return 0; }\n", "Makefile": rules})
    r.record("make-fail", "make", "make -k -j2", ["part7.c:1:26: error", "missing", "part7.o] Error 1"], bad)
    r.record("make-no-rule", "make", "make install", ["No rule to make target 'install'"], bad)
    sub = r.project("make-sub", {"Makefile": "all:\n\t$(MAKE) -C a\n\t$(MAKE) -C b\n", "a/Makefile": "all:\n\t@echo built a\n", "b/Makefile": "all:\n\t@echo checking b\n\t@echo 'config.yaml: port is missing' >&2; exit 3\n"})
    r.record("make-recursive-fail", "make", "make", ["config.yaml: port is missing", "Error 3"], sub)

    cm = r.project("cmake", {f"part{n}.c": f"int part{n}(void) {{ return {n}; }}\n" for n in range(24)} | {"main.c": "int part1(void);\nint main(void) { return part1(); }\n", "CMakeLists.txt": CMAKE})
    r.record("cmake-configure", "cmake", "cmake -S . -B build", ["Build files have been written to"], cm)
    r.record("cmake-build", "cmake", "cmake --build build", ["Built target app"], cm)
    r.record("ninja-build", "cmake", "cmake -G Ninja -S . -B nin > /dev/null && ninja -v -C nin", ["-o app"], cm, needs=["ninja"])
    r.run("cp -r . ../cmake-bad; cd ../cmake-bad; rm -rf build nin; echo 'int part9(void) { return nine; }' > part9.c", cm)
    cmbad = r.root / "cmake-bad"
    r.record("cmake-build-fail", "cmake", "cmake -S . -B build > /dev/null && cmake --build build", ["part9.c:1:26: error", "Error 1"], cmbad)
    r.record("cmake-configure-fail", "cmake", "cmake -S . -B other", ["CMakeLists.txt:3", "NoSuchPackage", "Configuring incomplete, errors occurred"],
             r.project("cmake-missing", {"CMakeLists.txt": "cmake_minimum_required(VERSION 3.13)\nproject(a C)\nfind_package(NoSuchPackage REQUIRED)\n"}))

    j = r.project("java", {"Shop.java": JAVA, "Bad.java": JAVA_BAD})
    r.record("java-compile-errors", "javac", "javac Bad.java", ["Bad.java:3: error: incompatible types", "Bad.java:5: error", "class Missing", "4 errors"], j, needs=["javac"])
    r.record("java-trace", "trace", "javac Shop.java && java Shop", ["order 4711 cannot be read", "NumberFormatException: For input string: \"two\"", "Shop.java:10", "Caused by"], j, needs=["javac"])
    r.record("java-trace-deep", "trace", "java Shop deep", ["StackOverflowError", "Shop.java:21"], j, needs=["javac"])
