// A form and its command mean the same, whatever is asked for; and what was asked for can be asked for again.
import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import type { Locator, Page } from '@playwright/test';
import { BERTH, type Berth, expect, HERE, test } from './berth.ts';

/** Types the line of a form, as somebody would who copied it. */
async function type(berth: Berth, line: string) {
  await promisify(execFile)('bash', ['-c', line.replace(/^berth/, '"$BERTH"')], {
    cwd: HERE,
    env: { ...process.env, BERTH, BERTH_HOME: berth.folder },
  });
}

async function shown(form: Locator): Promise<string> {
  return (await form.locator('code').textContent()) ?? '';
}

async function open(group: Locator, wanted: boolean) {
  const is = await group.evaluate(details => (details as HTMLDetailsElement).open);
  if (is !== wanted) await group.locator('summary').click();
}

/** Opens every part of a form, and fills in fields by their names. */
async function fill(form: Locator, fields: Record<string, string | true>) {
  for (const group of await form.locator('details').all()) await open(group, true);
  for (const [label, value] of Object.entries(fields)) {
    const field = form.getByLabel(label, { exact: true });
    if (value === true) await field.check();
    else if ((await field.evaluate(element => element.tagName)) === 'SELECT') await field.selectOption(value);
    else await field.fill(value);
  }
}

interface Known {
  id: number;
  request: Record<string, unknown>;
}

/** Variables that a command on the server's machine sends by itself; a page has none of them. */
const OF_THE_CALLER = /^(PATH|VIRTUAL_ENV|CONDA_.*|PYENV_.*|PYTHONPATH|LD_LIBRARY_PATH)$/;

/** What was asked for, without what differs between two that ask for the same. */
async function asked(berth: Berth, name: string, team: string): Promise<Record<string, unknown>> {
  const text = await berth.run('get', `${team}/${name}`, '--json');
  const { name: _, command_line: __, ...request } = (JSON.parse(text) as Known).request;
  // A command also sends the place of its caller, which the page cannot know.
  if (request.working_dir === HERE) delete request.working_dir;
  const variables = Object.entries((request.environment ?? {}) as Record<string, string>);
  const own = variables.filter(([variable]) => !OF_THE_CALLER.test(variable));
  if (own.length > 0) request.environment = Object.fromEntries(own);
  else delete request.environment;
  return JSON.parse(JSON.stringify(request).replaceAll(name, 'NAME')) as Record<string, unknown>;
}

const DRAFTS: Record<string, Record<string, string | true>> = {
  gang: {
    Type: 'distributed',
    'GPUs per worker': '0.25',
    Image: 'bash',
    'Ends after': '90m',
    Command: `bash -c 'echo "it'\\''s" $HOME; sleep 60'`,
    Workers: '3',
    'Minimum workers': '2',
    'When a worker fails': 'worker',
    Priority: 'high',
    'Tries after a failure': '3',
    'Time to save its state': '5s',
    'Devices per worker': '2',
    'GPU models': 'V100, NVIDIA A100-SXM4-80GB',
    'CPU cores': '0.5',
    Memory: '1.5Gi',
    'Large shared memory': true,
    'Node labels': 'berth.dev/node=node1',
    'Workers should share': 'node',
    'Spread workers over nodes': true,
    Environment: 'SEED=7\nTEXT=two words = "1"\nEMPTY=\nLINES=" one\\ntwo=2"',
    'Working folder': '/tmp',
    'Progress regex': 'at (?<percent>\\d+)%',
    'Allocate a terminal': true,
    'Attach stdin': true,
    'Host folders': '/usr/share:/data:ro',
    Volumes: 'kept:/kept',
    Ports: '8000 9000',
    'Reached by': 'ingress',
  },
  sweep: {
    'GPUs per worker': '',
    'GPU memory, instead of GPUs': '2Gi',
    Completions: '4',
    Parallelism: '2',
    Priority: '-3',
    'Never pull the image': true,
  },
  service: {
    Type: 'inference',
    Image: 'bash',
    Command: 'sleep 60',
    'GPUs per worker': '0',
    Workers: '2',
    Ports: '8000',
  },
  nb: { Type: 'notebook', 'GPUs per worker': '0.5', Preemptible: true },
};

async function openForm(page: Page) {
  await page.getByRole('button', { name: 'Submit', exact: true }).click();
  return page.getByRole('dialog');
}

for (const [name, fields] of Object.entries(DRAFTS))
  test(`the form, its command and a clone ask for the same: ${name}`, async ({ berth, signedIn: page }) => {
    await berth.run('volume', 'create', 'kept');
    await page.goto(`${berth.address}/workloads`);
    const form = await openForm(page);
    await fill(form, { Name: name, Project: 'team-d', ...fields });
    await expect(form.locator('[aria-invalid]')).toHaveCount(0);
    const line = await shown(form);
    await form.getByRole('button', { name: 'Submit', exact: true }).click();
    const drawer = page.getByRole('complementary', { name: `Workload ${name}` });
    await expect(drawer).toBeVisible();
    const request = await asked(berth, name, 'team-d');

    const typed = line.replace(`berth submit ${name} `, 'berth submit typed ');
    expect(typed, 'the name was said').not.toBe(line);
    await type(berth, typed);
    expect(await asked(berth, 'typed', 'team-d')).toEqual(request);
    // Values of variables are for whoever may read them.
    const told = JSON.parse(await berth.run('get', `team-d/${name}`, '--json')) as Known;
    expect(told.request.command_line).not.toContain('two words');

    await drawer.getByRole('button', { name: 'Clone' }).click();
    await expect(form.getByRole('heading', { name: 'Submit again' })).toBeVisible();
    await form.getByLabel('Name', { exact: true }).fill('again');
    await form.getByRole('button', { name: 'Submit', exact: true }).click();
    await expect(page.getByRole('complementary', { name: 'Workload again' })).toBeVisible();
    expect(await asked(berth, 'again', 'team-d')).toEqual(request);
  });

test('what is wrong is said beside its field, which is opened and gone to', async ({ signedIn: page }) => {
  await page.getByRole('link', { name: 'Workloads', exact: true }).click();
  const form = await openForm(page);
  await fill(form, { Name: 'fine', 'GPUs per worker': 'many', Ports: '80 http', Environment: 'NOTHING' });
  // It is the command of what stands there.
  await expect(form.locator('code')).toContainText('-g many');
  for (const group of await form.locator('details').all()) await open(group, false);
  await form.getByRole('button', { name: 'Submit', exact: true }).click();
  await expect(form.getByLabel('GPUs per worker')).toBeFocused();
  for (const text of ['A number, such as 2', 'Ports are numbers up to 65535', '“NOTHING” is none'])
    await expect(form.getByText(text)).toBeAttached();
  await fill(form, { 'GPUs per worker': '1' });
  for (const group of await form.locator('details').all()) await open(group, false);
  await form.getByRole('button', { name: 'Submit', exact: true }).click();
  await expect(form.getByLabel('Environment')).toBeFocused();
  // What is mended stays where it is.
  await form.getByLabel('Environment').fill('');
  await form.getByLabel('Environment').pressSequentially('A=1');
  await expect(form.getByLabel('Environment')).toBeFocused();
  await expect(form.getByLabel('Environment')).toHaveValue('A=1');
  // What only the server knows is said in the same place.
  await fill(form, { 'GPUs per worker': '1', Ports: '', Environment: '', 'Node pool': 'atlantis' });
  await form.getByRole('button', { name: 'Submit', exact: true }).click();
  await expect(form.getByLabel('Node pool')).toBeFocused();
  await expect(form.getByLabel('Node pool')).toHaveAttribute('aria-invalid', 'true');
});

test('a project is set by its form as by its command, and unset too', async ({ berth, signedIn: page }) => {
  await page.getByRole('link', { name: 'Projects', exact: true }).click();
  await page.getByRole('button', { name: 'Change team-a', exact: true }).first().click();
  const form = page.getByRole('dialog');
  const settings = async (name: string) => {
    const known = JSON.parse(await berth.run('project', 'list', '--json')) as {
      items: { name: string; settings: Record<string, unknown> }[];
    };
    const { name: _, ...settings } = known.items.find(project => project.name === name)!.settings;
    return settings;
  };
  const before = await settings('team-a');
  await fill(form, {
    Limit: '6',
    Weight: '2.5',
    Rank: '-1',
    'Interactive time limit': '8h',
    'Minimum run time before a preemption': '10m',
    'Training node affinity': 'type=dgx1 type=dgx2 rack=r1',
    'Quota by GPU model': 'V100=2',
    'CPU quota': '8',
    'Memory quota': '64Gi',
    'Allow host network': true,
  });
  const line = await shown(form);
  await form.getByRole('button', { name: 'Save' }).click();
  await expect(form).toBeHidden();
  const set = await settings('team-a');
  expect(set).toMatchObject({
    limit: 6,
    rank: -1,
    interactive_limit_secs: 28_800,
    train_nodes: { type: ['dgx1', 'dgx2'], rack: ['r1'] },
    model_quotas: { V100: 2 },
    memory_quota: 64 * 2 ** 30,
    allow_host_network: true,
  });
  await berth.run('project', 'create', 'typed', '--quota', '4');
  await type(berth, line.replace('update team-a', 'update typed'));
  expect(await settings('typed')).toEqual(set);

  await page.getByRole('button', { name: 'Change team-a', exact: true }).first().click();
  for (const field of await form.locator('details input:not([type=checkbox])').all()) await field.fill('');
  await form.getByLabel('Allow host network').uncheck();
  await fill(form, { Limit: '', Weight: '', Rank: '' });
  const back = await shown(form);
  await form.getByRole('button', { name: 'Save' }).click();
  await expect(form).toBeHidden();
  const unset = await settings('team-a');
  expect(unset).toMatchObject({ quota: before.quota });
  for (const name of ['limit', 'train_nodes', 'model_quotas', 'memory_quota'])
    expect(unset[name] ?? {}).toEqual({});
  await type(berth, back.replace('update team-a', 'update typed'));
  expect(await settings('typed')).toEqual(unset);
});
