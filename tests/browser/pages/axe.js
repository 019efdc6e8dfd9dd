// What axe-core, which the page must have, finds under rules or tags of rules, but for those left out: a line for each element.
([only, without]) =>
  axe.run(
    { exclude: ["[data-foreign]"] },
    { runOnly: only, rules: Object.fromEntries(without.map((id) => [id, { enabled: false }])), resultTypes: ["violations"] },
  ).then(({ violations }) =>
    violations.flatMap(({ id, help, nodes }) =>
      nodes.map(({ html, any, all, none }) => {
        const reason = [...any, ...all, ...none].map((check) => check.message)[0] ?? "";
        return `${id} (${help}): ${html.slice(0, 160).replace(/\s+/g, " ")} ${reason}`;
      }),
    ),
  )
