// Figure modules by the name of a scene's `view`.
const FIGURES = {
  swimlane: createSwimlane,
  board: createBoard,
  account: createAccount,
  split: createSplit,
  live: createLive,
};
