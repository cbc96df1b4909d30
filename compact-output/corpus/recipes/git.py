"""git on a repository with a history."""

PREFIXES = ["git"]


def make(r):
    files = {f"src/module{n}.py": f"def f{n}(x):\n    return x + {n}\n" for n in range(120)}
    repo = r.project("repo", files | {"README.md": "# Shop\n\nSells pens.\n", "notes.txt": "".join(f"line {n} of the notes\n" for n in range(300))})
    r.run('git init -q -b main; git config user.name Ada; git config user.email ada@example.org; git add -A; git commit -qm "Add the shop"', repo)
    for n in range(90):
        r.run(f'echo "# change {n}" >> src/module{n}.py; git commit -qam "Change module {n} so that it adds faster" -m "Measured on the list of {n} rows."', repo)
    r.record("git-status-clean", "git", "git status", ["nothing to commit, working tree clean"], repo)
    r.record("git-log", "git", "git log", ["Change module 89 so that it adds faster", "Change module 60 so"], repo)
    r.record("git-log-oneline", "git", "git log --oneline -40", ["Change module 89 so that it adds faster", "Change module 50"], repo)
    r.record("git-log-stat", "git", "git log --stat -12", ["Change module 80", "src/module85.py"], repo)
    r.record("git-log-patch", "git", "git log -p -5", ["+# change 89", "Change module 86"], repo)
    r.record("git-show", "git", "git show HEAD", ["+# change 89", "src/module89.py"], repo)
    r.record("git-clone", "git", "git clone --progress file://$PWD ../clone", ["Cloning into '../clone'"], repo)
    r.record("git-clone-fail", "git", "git clone file:///no/such/repo.git", ["does not appear to be a git repository", "fatal:"], repo)
    r.run("git checkout -qb other HEAD~3; echo 'def g(): return 0' > src/module1.py; git commit -qam 'Replace module 1'; git checkout -q main; "
          "echo 'def h(): return 1' > src/module1.py; git commit -qam 'Rewrite module 1'", repo)
    r.record("git-branches", "git", "git branch -avv", ["* main", "other"], repo)
    r.record("git-merge-conflict", "git", "git merge other", ["CONFLICT (content): Merge conflict in src/module1.py", "Automatic merge failed"], repo)
    r.record("git-status-conflict", "git", "git status", ["both modified", "src/module1.py"], repo)
    r.record("git-diff-conflict", "git", "git diff", ["<<<<<<< HEAD", "def h(): return 1", "def g(): return 0"], repo)
    r.run("git merge --abort", repo)
    r.run("for n in $(seq 0 79); do sed -i s/return/yield/ src/module$n.py; done; git mv README.md INTRO.md; rm src/module100.py; touch new1.txt new2.txt; "
          "sed -i '5,250d' notes.txt; sed -i '2s/.*/a changed second line/' notes.txt", repo)
    r.record("git-status-many", "git", "git status", ["README.md -> INTRO.md", "src/module42.py", "src/module100.py", "new1.txt"], repo)
    r.record("git-status-short", "git", "git status -s", ["INTRO.md", "src/module79.py", "?? new2.txt"], repo)
    r.record("git-diff", "git", "git diff -- notes.txt src/module3.py", ["+a changed second line", "-line 1 of the notes", "+    yield x + 3", "src/module3.py"], repo)
    r.record("git-diff-many", "git", "git diff", ["+    yield x + 42", "src/module79.py", "src/module100.py", "deleted file"], repo)
    r.record("git-diff-stat", "git", "git diff --stat", ["src/module79.py", "82 files changed"], repo)
    r.record("git-diff-tty", "git", "git diff --color=always -- src/module5.py", ["+    yield x + 5"], repo, tty=True)
    r.record("git-commit", "git", "git add -A && git commit -m 'Yield instead of return'", ["Yield instead of return", "85 files changed"], repo)
    r.record("git-checkout-fail", "git", "git checkout no-such-branch", ["pathspec 'no-such-branch' did not match"], repo)
    r.record("git-blame", "git", "git blame src/module9.py", ["# change 9", "yield x + 9"], repo)
    r.run("git clone -q . ../b; cd ../b; git config user.name Bo; git config user.email bo@example.org; git commit -q --allow-empty -m theirs; cd -; git commit -q --allow-empty -m ours", repo)
    r.record("git-push-rejected", "git", "git push origin main", ["rejected", "fetch first"], r.root / "b")
