// What a role may not do is not offered; and who has which is said in the page.
import type { Department, Project } from '../src/api/types.ts';
import { may } from '../src/model/may.ts';
import { expect, signIn, TEAMS, test } from './berth.ts';

test('roles allow what the server allows', () => {
  const project = (name: string, department?: string) =>
    ({ name, settings: { department: department ?? null } }) as Project;
  const department = (name: string, parent?: string) =>
    ({ name, settings: { parent: parent ?? null } }) as Department;
  const owners = {
    projects: [project('alpha', 'lab'), project('beta')],
    departments: [department('science'), department('lab', 'science')],
  };
  const as = (role: 'admin' | 'department-lead' | 'project-lead' | 'researcher' | 'viewer', scope: string) =>
    may('ada', [{ user: 'ada', role, scope }], owners);
  const own = { project: 'alpha', user: 'ada' };
  const foreign = { project: 'alpha', user: 'bob' };
  expect(as('admin', 'all').do('rule')).toBe(true);
  expect(as('department-lead', 'department/science').do('settings', 'project/alpha')).toBe(true);
  expect(as('department-lead', 'department/science').do('settings', 'project/beta')).toBe(false);
  expect(as('department-lead', 'department/science').do('rule')).toBe(false);
  expect(as('department-lead', 'department/lab').setDepartment(owners.departments[1]!)).toBe(false);
  expect(as('department-lead', 'department/science').setDepartment(owners.departments[1]!)).toBe(true);
  expect(as('project-lead', 'project/alpha').work(foreign)).toBe(true);
  expect(as('project-lead', 'project/alpha').do('settings', 'project/alpha')).toBe(false);
  expect(as('project-lead', 'project/alpha').grants('researcher')).toEqual(['project/alpha']);
  expect(as('project-lead', 'project/alpha').grants('department-lead')).toEqual([]);
  expect(as('researcher', 'project/alpha').work(own)).toBe(true);
  expect(as('researcher', 'project/alpha').work(foreign)).toBe(false);
  expect(as('researcher', 'project/beta').work(own)).toBe(false);
  expect(as('viewer', 'all').do('see', 'project/alpha')).toBe(true);
  expect(as('viewer', 'all').somewhere('submit')).toBe(false);
  expect(may('ada', [], owners).somewhere('see')).toBe(false);
});

test('a viewer sees everything of the project, and no actions', async ({ berth, page }) => {
  await berth.up(...TEAMS);
  const token = await berth.join('vera', 'viewer', 'project/team-a');
  await berth.run('submit', 'seen', '-p', 'team-a', '-g', '1', '-i', 'bash', '--', 'sleep', 'infinity');
  await berth.run('submit', 'unseen', '-p', 'team-b', '-g', '1', '-i', 'bash', '--', 'sleep', 'infinity');
  await signIn(page, berth.address, token);
  const acts =
    /^(Submit|Suspend|Resume|Delete|Clone|Cordon|Uncordon|Drain|New (user|project|department)|Change|Grant|Add)\b/;
  // Each page, and something that is there when it is whole.
  for (const [path, whole] of [
    ['/', page.getByRole('link', { name: 'seen', exact: true })],
    ['/workloads', page.getByRole('link', { name: 'seen', exact: true })],
    ['/projects', page.getByRole('link', { name: 'team-a' })],
    ['/projects/team-a', page.getByRole('heading', { name: 'You' })],
    ['/nodes', page.getByRole('article', { name: 'node1' })],
    ['/nodes/node1', page.getByRole('heading', { name: 'Devices' })],
    ['/analytics', page.getByRole('heading', { name: 'Queue' })],
    ['/people', page.getByRole('row', { name: /vera/ })],
    ['/settings', page.getByText('viewer')],
  ] as const) {
    await page.goto(berth.address + path);
    await expect(whole.first(), path).toBeVisible();
    await expect(page.getByRole('button', { name: acts }), path).toHaveCount(0);
  }
  // What is one's own can be given up.
  await page.goto(`${berth.address}/people`);
  await expect(page.getByRole('button', { name: 'Revoke test of vera' })).toBeVisible();
  await page.goto(`${berth.address}/workloads`);
  await expect(page.getByRole('link', { name: 'unseen' })).toHaveCount(0);
  await page.getByRole('link', { name: 'seen', exact: true }).click();
  const drawer = page.getByRole('complementary', { name: 'Workload seen' });
  await expect(drawer.getByRole('tab')).toHaveText(['Details', 'Logs', 'Events', 'Metrics', 'Connect']);
  await expect(drawer.getByRole('button', { name: acts })).toHaveCount(0);
  await drawer.getByRole('tab', { name: 'Connect' }).click();
  await expect(drawer.getByText('berth logs seen')).toBeVisible();
  await expect(drawer.getByText('berth bash')).toHaveCount(0);
  await page.goto(`${berth.address}/people`);
  await expect(page.getByRole('tab')).toHaveText(['Tokens']);
});

test('an administrator makes a user, a role and a token, who then sees own work alone to act on', async ({
  berth,
  page,
  browser,
}) => {
  await berth.up(...TEAMS);
  await berth.run('submit', 'foreign', '-p', 'team-a', '-g', '1', '-i', 'bash', '--', 'sleep', 'infinity');
  await page.goto(berth.link);
  await page.getByRole('link', { name: 'People' }).click();
  await page.getByRole('button', { name: 'New user' }).click();
  await page.getByLabel('Name').fill('Bob The Builder!');
  await page.getByRole('button', { name: 'Create', exact: true }).click();
  await expect(page.getByLabel('Name')).toHaveAttribute('aria-invalid', 'true');
  await page.getByLabel('Name').fill('bob');
  await page.getByRole('button', { name: 'Create', exact: true }).click();
  await page.getByRole('button', { name: 'Grant a role to bob' }).click();
  await page.getByLabel('Role', { exact: true }).selectOption('researcher');
  await page.getByLabel('Where', { exact: true }).selectOption('project/team-a');
  await expect(
    page.getByRole('dialog').getByText('berth role grant bob researcher project/team-a'),
  ).toBeVisible();
  await page.getByRole('button', { name: 'Grant', exact: true }).click();
  await expect(page.getByRole('row', { name: /bob/ })).toContainText('researcher');

  await page.getByRole('tab', { name: 'Tokens' }).click();
  await page.getByRole('button', { name: 'New token' }).click();
  await page.getByLabel('Purpose').fill('laptop');
  await page.getByRole('dialog').getByLabel('User').selectOption('bob');
  await page.getByLabel('Expires after').fill('soon');
  await expect(page.getByText('A time such as 12h or 30d')).toBeVisible();
  await page.getByLabel('Expires after').fill('30d');
  await page.getByRole('button', { name: 'Create', exact: true }).click();
  const dialog = page.getByRole('dialog', { name: 'The token laptop of bob' });
  const token = (await dialog.locator('code').first().textContent()) ?? '';
  expect(token).toMatch(/^berth-\d+-[0-9a-f]{64}$/);
  await dialog.getByRole('button', { name: 'Done' }).click();
  await expect(dialog).toBeHidden();
  await expect(page.getByRole('row', { name: /laptop/ })).toContainText('bob');
  expect(await page.content()).not.toContain(token);

  const bob = await (await browser.newContext()).newPage();
  await signIn(bob, berth.address, token);
  await bob.goto(`${berth.address}/workloads`);
  await bob.getByRole('button', { name: 'Submit', exact: true }).click();
  await expect(bob.getByRole('dialog').getByLabel('Project').locator('option')).toHaveText(['team-a']);
  await bob.getByRole('dialog').getByLabel('Name').fill('own');
  await bob.getByRole('dialog').getByRole('button', { name: 'Submit', exact: true }).click();
  const own = bob.getByRole('complementary', { name: 'Workload own' });
  await expect(own.getByRole('button', { name: 'Delete' })).toBeVisible();
  await own.getByRole('button', { name: 'Close' }).click();
  await bob.getByRole('link', { name: 'foreign', exact: true }).click();
  const foreign = bob.getByRole('complementary', { name: 'Workload foreign' });
  await expect(foreign.getByRole('button', { name: 'Clone' })).toBeVisible();
  await expect(foreign.getByRole('button', { name: /Delete|Suspend/ })).toHaveCount(0);
  await expect(foreign.getByRole('tab', { name: 'Terminal' })).toHaveCount(0);

  await page.getByRole('button', { name: 'Revoke laptop of bob' }).click();
  await page.getByRole('dialog').getByRole('button', { name: 'Revoke' }).click();
  await expect(page.getByRole('row', { name: /laptop/ })).toHaveCount(0);
  await bob.reload();
  await expect(bob.getByLabel('Or sign in with a token')).toBeVisible();
  await bob.context().close();

  await page.getByRole('tab', { name: 'Audit' }).click();
  await page.getByLabel('User', { exact: true }).fill('bob');
  await page.keyboard.press('Enter');
  const audit = page.getByRole('region', { name: 'Audit' });
  await expect(audit.getByRole('row', { name: /submit workload/ })).toContainText('allowed');
  await expect(audit).not.toContainText('create token');
  const [file] = await Promise.all([
    page.waitForEvent('download'),
    page.getByRole('button', { name: 'CSV' }).click(),
  ]);
  expect(file.suggestedFilename()).toBe('audit.csv');
});

test('members of a project are added and taken out where it is shown', async ({ berth, page }) => {
  await berth.up(...TEAMS);
  const lead = await berth.join('lea', 'project-lead', 'project/team-a');
  await berth.run('user', 'create', 'rob');
  await signIn(page, berth.address, lead);
  await page.goto(`${berth.address}/projects`);
  await page.getByRole('link', { name: 'team-a' }).click();
  const drawer = page.getByRole('complementary', { name: 'Project team-a' });
  await expect(drawer.getByRole('button', { name: 'Change team-a' })).toHaveCount(0);
  await drawer.getByRole('button', { name: 'Add a member' }).click();
  const form = page.getByRole('dialog');
  await expect(form.getByLabel('Role').locator('option')).toHaveCount(3);
  await form.getByLabel('User').fill('nobody');
  await form.getByRole('button', { name: 'Grant' }).click();
  await expect(form.getByRole('alert')).toContainText('There is no user');
  await form.getByLabel('User').fill('rob');
  await form.getByRole('button', { name: 'Grant' }).click();
  await expect(form).toBeHidden();
  await expect(drawer.getByRole('listitem').filter({ hasText: 'rob' })).toContainText('researcher');
  await drawer.getByRole('button', { name: 'Revoke researcher project team-a from rob' }).click();
  await expect(drawer.getByRole('listitem').filter({ hasText: 'rob' })).toHaveCount(0);
});

test('a declared port opens by a link that is good once', async ({ berth, signedIn: page }) => {
  await berth.run(
    'submit',
    'web',
    '-p',
    'team-a',
    '-g',
    '1',
    '-i',
    'bash',
    '--port',
    '8000',
    '--working-dir',
    '-',
    '--',
    'bash',
    '-c',
    'mkdir -p w; echo hello from the port > w/index.html; exec python3 -m http.server -d w "$BERTH_PORT"',
  );
  await berth.run('wait', 'web', '-p', 'team-a', '--for', 'running');
  await page.getByRole('link', { name: 'web', exact: true }).click();
  await page.getByRole('tab', { name: 'Connect' }).click();
  await page.getByRole('button', { name: 'Make a link to port 8000' }).click();
  const link = page.locator('.port code');
  await expect(link).toContainText('berth-ticket=');
  const [other] = await Promise.all([
    page.context().waitForEvent('page'),
    page.getByRole('button', { name: 'Open port 8000' }).click(),
  ]);
  await expect(other.getByText('hello from the port')).toBeVisible();
  expect(other.url()).not.toContain('ticket');
});
