// What somebody may do. Everybody who is signed in may do everything today; with roles, this is the one place that asks.

export type Deed = 'submit' | 'change-workload' | 'change-project' | 'change-node' | 'administer';

export function may(_deed: Deed, _project?: string): boolean {
  return true;
}
